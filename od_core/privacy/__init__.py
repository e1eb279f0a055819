"""Define the privacy unit, the neighbouring inputs and the budget, and account for the spent budget."""
