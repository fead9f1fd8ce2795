"""`python -m infra.rotation`: give a process another login of the database, and end the one before."""

import argparse
import sys
from collections.abc import Sequence

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from infra.rotation import login


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m infra.rotation",
        description="Give a process of a deployment another login of the database, with another password, without a"
        " pause, and end the login before. It can be repeated, and goes on where it was interrupted.",
    )
    made.add_argument("process", choices=sorted(login.processes()), help="whose login it is")
    made.add_argument("--stack", required=True, metavar="NAME", help="such as dev, staging or prod")
    made.add_argument("--region", help="of the stack; otherwise the region of your AWS profile")
    return made


def main(arguments: Sequence[str]) -> int:
    given = parser().parse_args(arguments)
    session = boto3.Session(region_name=given.region)
    if session.region_name is None:
        print("No region is known. Name one: --region eu-central-1", file=sys.stderr)
        return 64
    try:
        for line in login.rotate(session, given.stack, given.process):
            print(line, flush=True)
    except (login.RotationError, ClientError, BotoCoreError) as error:
        print(error, file=sys.stderr)
        print(
            "The old login works until it is ended. Run the command again: it goes on from here.",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
