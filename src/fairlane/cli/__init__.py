"""The command ``fairlane``: thin commands over a door to a broker, on a server or in a folder."""
