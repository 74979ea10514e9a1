"""How fast cells must be, and how that scales: references, baselines, further launches, efficiency."""
