"""What a user can choose: kinds of values, and the table of fairness tests. Nothing heavy is imported."""
