"""The script that makes a shell complete the command line."""

from argparse import Namespace

from argcomplete.shell_integration import shellcode

from control_plane.cli.parsing import Commands, command
from control_plane.cli.terminal import Terminal

SHELLS = ("bash", "zsh", "fish")


def add(to: Commands) -> None:
    parser = command(
        to,
        "completion",
        completion,
        "Print the script with which a shell completes commands, options and names.",
        more="When you press Tab, names of leases, SKUs, projects and the like are read from\nthe API.",
        examples="""
        source <(splitplane completion bash)                    (in ~/.bashrc)
        splitplane completion zsh > ~/.zfunc/_splitplane        (a folder in fpath)
        splitplane completion fish > ~/.config/fish/completions/splitplane.fish
        """,
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell that you use")


def completion(terminal: Terminal, args: Namespace) -> None:
    script = shellcode(["splitplane"], shell=args.shell)
    if args.json:
        terminal.json({"shell": args.shell, "script": script})
    else:
        terminal.write(f"{script.strip()}\n")
