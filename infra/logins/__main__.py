"""`python -m infra.logins`: make the logins of a deployment's database, or give a process another one."""

import argparse
import signal
import sys
from collections.abc import Sequence
from contextlib import closing

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from infra.logins import first, rotation
from infra.logins.cluster import LoginsError


def parser() -> argparse.ArgumentParser:
    stack = argparse.ArgumentParser(add_help=False)
    stack.add_argument("--stack", required=True, metavar="NAME", help="such as dev, staging or prod")
    stack.add_argument("--region", help="of the stack; otherwise the region of your AWS profile")
    made = argparse.ArgumentParser(
        prog="python -m infra.logins",
        description="Make the logins of the database of a deployment on AWS, or give a process another one. Both can be"
        " repeated, and go on where they were interrupted.",
    )
    verbs = made.add_subparsers(dest="verb", required=True, metavar="VERB")
    verbs.add_parser("first", parents=[stack], help="fill the secrets of the logins, and make the logins")
    rotate = verbs.add_parser(
        "rotate",
        parents=[stack],
        help="give a process another login, with another password and without a pause, and end the login before",
    )
    rotate.add_argument("process", choices=sorted(rotation.processes()), help="whose login it is")
    return made


def main(arguments: Sequence[str]) -> int:
    given = parser().parse_args(arguments)
    session = boto3.Session(region_name=given.region)
    if session.region_name is None:
        print("No region is known. Name one: --region eu-central-1", file=sys.stderr)
        return 64
    lines = (
        first.make(session, given.stack)
        if given.verb == "first"
        else rotation.rotate(session, given.stack, given.process)
    )
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)  # What was lent is taken back, as after Ctrl-C.
    try:
        with closing(lines):
            for line in lines:
                print(line, flush=True)
    except KeyboardInterrupt:
        print("Interrupted. Run the command again: it goes on where it was.", file=sys.stderr)
        return 130
    except (LoginsError, ClientError, BotoCoreError) as error:
        print(error, file=sys.stderr)
        print("Nothing that worked before was ended. Mend this, and run the command again.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
