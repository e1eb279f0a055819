"""Write what is published: public tables, the certificate, the bundle, the release database."""
