"""The sections of the page: one file for each verb's, and the timeline that two of them show."""
