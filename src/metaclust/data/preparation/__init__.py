"""From rows as read to what an encoder takes."""
