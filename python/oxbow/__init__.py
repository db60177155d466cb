"""oxbow from Python. `oxbow.reward`: rewards of your own, served to oxbow's learner."""
__version__ = "0.1.0"
