"""Profiles: stored logins, one for each organization."""

from argparse import Namespace

from control_plane.cli import config
from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.profiles import profile_table
from control_plane.cli.terminal import Terminal


def add(to: Commands) -> None:
    profiles = noun(to, "profile", "List your stored logins, and choose the one in use.")
    command(
        profiles,
        "list",
        list_profiles,
        "List your stored logins.",
        examples="splitplane profile list",
    )
    parser = command(
        profiles,
        "use",
        use,
        "Use a login from now on.",
        more="For a single command, add --profile NAME to it, or set SPLITPLANE_PROFILE.",
        examples="""
        splitplane profile use heliotrope
        splitplane lease list --profile other
        """,
    )
    parser.add_argument("name", metavar="NAME", help="as `splitplane profile list` shows it")


def list_profiles(terminal: Terminal, args: Namespace) -> None:
    file = config.profiles(terminal.environ)
    items = [
        {
            "name": name,
            "url": login.url,
            "organization_id": login.holder.organization_id,
            "organization": login.holder.organization,
            "subject": login.holder.subject,
            "credential": login.kind,
            "in_use": name == file.in_use,
        }
        for name, login in sorted(file.profiles.items())
    ]
    if args.json:
        terminal.json({"items": items})
    elif terminal.quiet:
        terminal.write("".join(f"{item['name']}\n" for item in items))
    else:
        terminal.show(profile_table(file))


def use(terminal: Terminal, args: Namespace) -> None:
    config.use_profile(terminal.environ, args.name)
    if args.json:
        terminal.json({"profile": args.name})
        return
    terminal.say(f"Commands use {args.name} from now on.")
