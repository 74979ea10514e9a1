"""Program output to Outcome, and runs to differences. Pure: nothing here touches a node."""
