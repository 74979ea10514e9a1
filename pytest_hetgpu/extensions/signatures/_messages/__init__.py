"""What the texts of each tool mean: tables of words, each with the upstream source that prints them."""
