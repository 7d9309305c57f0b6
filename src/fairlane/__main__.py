"""Lets ``python -m fairlane`` be the command ``fairlane``."""

from fairlane.cli.main import main

main()
