"""The Java that Spark runs on: JAVA_HOME, or `java` of the path, 17 or newer."""

import os
import platform
import re
import shutil
import subprocess
from typing import Final

OLDEST: Final = 17
COMMANDS: Final = {  # that help, by the program that a system installs with
    "apt-get": "sudo apt-get install openjdk-17-jre-headless",
    "dnf": "sudo dnf install java-17-openjdk-headless",
    "yum": "sudo yum install java-17-openjdk-headless",
    "apk": "sudo apk add openjdk17-jre-headless",
    "pacman": "sudo pacman -S jre17-openjdk-headless",
    "zypper": "sudo zypper install java-17-openjdk-headless",
    "brew": "brew install openjdk@17",
}


class NoJava(RuntimeError):
    """Spark cannot be started."""


def check() -> str:
    """The path of a Java that Spark runs on; NoJava, with what to do, when there is none."""
    home = os.environ.get("JAVA_HOME")
    path = f"{home}/bin/java" if home else shutil.which("java")
    if path is None or not os.access(path, os.X_OK):
        said = f"there is no {path}, where JAVA_HOME points" if home else "there is no java"
        raise NoJava(f"{said}: pipelines run on Spark, which needs Java {OLDEST} or newer; {remedy()}")
    found = version(path)
    if found is None or found < OLDEST:
        said = f"{path} is Java {found}" if found else f"{path} does not say which version it is"
        raise NoJava(f"{said}: Spark needs {OLDEST} or newer; {remedy()}, or point JAVA_HOME to one")
    return path


def version(path: str) -> int | None:
    """The number that counts: 17 of 17.0.9, 8 of 1.8.0_292."""
    try:
        said = subprocess.run([path, "-version"], capture_output=True, text=True, check=False, timeout=60).stderr
    except OSError:
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else None


def remedy() -> str:
    for program, command in COMMANDS.items():
        if shutil.which(program):
            return f"install it with: {command}"
    return f"install a JRE {OLDEST} for {platform.system()}"
