"""`python -m infra.state`: make the bucket and the key for the state of Pulumi, or mend them."""

import argparse
import sys
from collections.abc import Sequence

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from infra.state import place


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m infra.state",
        description="Make the bucket and the key for the state of Pulumi in your AWS account. It can be repeated.",
    )
    made.add_argument(
        "--region",
        help="where they are to be, such as eu-central-1; otherwise the region of your AWS profile",
    )
    return made


def main(arguments: Sequence[str]) -> int:
    session = boto3.Session(region_name=parser().parse_args(arguments).region)
    if session.region_name is None:
        print("No region is known. Name one: --region eu-central-1", file=sys.stderr)
        return 64
    try:
        for line in place.make(session):
            print(line, flush=True)
    except place.StateError as error:
        print(error, file=sys.stderr)
        return 1
    except (ClientError, BotoCoreError) as error:
        print(f"AWS did not do that: {error}", file=sys.stderr)
        print("What was made so far stays. Mend this, and run the command again.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
