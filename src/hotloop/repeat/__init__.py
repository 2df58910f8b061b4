"""The fourth step: did a change help, was it worth it, are we done?"""
