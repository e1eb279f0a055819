"""Write the public files of a release: tables, certificate, bundle and release database."""
