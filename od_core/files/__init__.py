"""Write files that survive a crash, and open DuckDB sessions that reach nothing else."""
