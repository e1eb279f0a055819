"""From files to public zone lists and to confidential records."""
