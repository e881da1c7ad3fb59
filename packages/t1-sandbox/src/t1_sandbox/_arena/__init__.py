"""The process that owns every sandbox of one provider; it runs apart from the client.

Nothing here imports the client side: the arena forks once or twice per sandbox, so what it loads
is what every fork pays for.
"""
