"""The console: the server's pages for people. Rendered here, without a script and without anything from outside.

What a page shows and what a form does is what the API shows and does: the same functions, the same roles, the same
refusals. A modeler sees public descriptions and what is theirs; an auditor sees all and changes nothing.
"""
