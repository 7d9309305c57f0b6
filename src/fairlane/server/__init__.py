"""A server: the interfaces of a broker over the network, API keys, metrics, the live feed and tracing.

``fairlane.server.run`` starts one from ``fairlane.server.settings``.
"""
