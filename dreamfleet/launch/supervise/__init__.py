"""What keeps a run alive: the supervisor, the processes of the roles, their heartbeats and status.

Imports nothing, since every role's process passes through here.
"""
