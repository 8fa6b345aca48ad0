"""From texts to trees: `TreeParser`, and adaptors that give it to NLTK and spaCy."""
