"""Texts to trees: `TreeParser`, and what gives it to nltk and spaCy."""
