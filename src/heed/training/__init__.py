"""How models come about: recipes, one loop, and training again under other conditions."""
