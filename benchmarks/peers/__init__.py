"""Release the same trips with other software, at the same privacy, and measure all results with one program."""
