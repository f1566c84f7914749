"""The data pipelines of an app that rewards people for looking at ads on their lock screen, on Spark."""
