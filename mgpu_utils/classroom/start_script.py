"""Install the course from this folder into .venv, and open it. Copied into each pack as start.py.

It needs nothing but Python, and runs on versions too old for the course far enough to say so.
"""

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
VENV = os.path.join(HERE, ".venv")
UNFINISHED = os.path.join(VENV, ".installing")
SYSTEMS = {"linux": "linux", "darwin": "macos", "win32": "windows"}


def main(arguments: "list[str]") -> int:
    """Install where that is still to be done; open JupyterLab unless --install-only is given."""
    with open(os.path.join(HERE, "pack.json"), encoding="utf-8") as file:
        pack = json.load(file)
    complaint = unfit(pack)
    if complaint:
        sys.exit(complaint)
    if os.path.exists(UNFINISHED) or not os.path.exists(python()):
        install(pack)
    if arguments == ["--install-only"]:
        print(f"The course is installed in {VENV}")
        return 0
    command = [python(), "-m", "mgpu_utils.classroom.open_pack", HERE, *arguments]
    if os.name == "nt":
        return subprocess.call(command)
    os.execv(command[0], command)


def unfit(pack: dict) -> str:
    """Why this Python or this machine cannot use the pack; "" when it can."""
    minor = f"{sys.version_info[0]}.{sys.version_info[1]}"
    here = f"{minor}.{sys.version_info[2]}"
    if minor not in pack["pythons"]:
        newest = list(pack["pythons"])[-1]
        better = f"py -{newest}" if os.name == "nt" else f"python{newest}"
        return f"This pack is for Python {' or '.join(pack['pythons'])}; this is Python {here}. Try: {better} start.py"
    lowest = pack["pythons"][minor]
    if sys.version_info[2] < int(lowest.split(".")[2]):
        return f"This is Python {here}; the course needs {lowest} or newer. Update Python, then run this again."
    system = SYSTEMS.get(sys.platform, sys.platform)
    if pack["offline"] and not any(name.startswith(system + "-") for name in pack["platforms"]):
        held = ", ".join(pack["platforms"])
        return f"This pack holds no wheels for {system}, only for {held}. Ask your teacher for another one."
    return ""


def install(pack: dict) -> None:
    """Make .venv and install into it: from wheels/ alone where the pack holds all of them."""
    import venv

    print(f"Installing the course into {VENV}: a few minutes, once.", flush=True)
    os.makedirs(VENV, exist_ok=True)
    with open(UNFINISHED, "w"):
        pass
    try:
        venv.create(VENV, with_pip=True)
    except (subprocess.CalledProcessError, SystemExit, ImportError):
        sys.exit("Python could not make .venv; on Debian and Ubuntu install python3-venv, then run this again.")
    command = [python(), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["-c", os.path.join(HERE, "constraints.txt"), os.path.join(HERE, "wheels", pack["wheel"])]
    environment = dict(os.environ)
    if pack["offline"]:
        command += ["--no-index", "--find-links", os.path.join(HERE, "wheels")]
        # A configuration with an index, or with other constraints, has no say here.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
        environment["PIP_CONFIG_FILE"] = os.devnull
    if subprocess.call(command, env=environment):
        sys.exit("The installation failed; pip says why above. Run the same command again to retry.")
    os.remove(UNFINISHED)


def python() -> str:
    """The Python of the pack's own environment."""
    return os.path.join(VENV, "Scripts", "python.exe") if os.name == "nt" else os.path.join(VENV, "bin", "python")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
