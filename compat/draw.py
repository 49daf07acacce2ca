"""Draw, as the families of this folder import it."""

from ..schema.draw import TEXT, shares, text

__all__ = ["TEXT", "shares", "text"]
