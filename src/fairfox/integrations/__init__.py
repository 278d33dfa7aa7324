"""Results in the tools that people work with: fairlearn's frames, MLflow's runs."""
