"""Write files that survive a crash, and open DuckDB sessions that can reach no other files."""
