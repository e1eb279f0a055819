"""What leaves the house: public tables, the certificate, the bundle, the release database."""
