"""Write the HTML pages of a bundle."""
