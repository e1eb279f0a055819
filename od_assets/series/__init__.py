"""Define the settings of declared release series, their periods and their engines."""
