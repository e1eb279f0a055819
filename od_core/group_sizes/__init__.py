"""Release group-size tables, which state for every area and every size j how many groups have j members."""
