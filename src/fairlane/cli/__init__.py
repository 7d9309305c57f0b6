"""The command ``fairlane``: thin commands over a broker, on a server or in a folder."""
