"""Write files that survive a crash, and open DuckDB sessions that can access only the files given to them."""
