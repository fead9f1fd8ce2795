"""Answers as tables and pages, one file per noun. Pure: structs of the wire and a time in, renderables out.

Text was cleaned before (`words.clean`) and is drawn as Text or plain strings, never as markup. Every screen fits
80 columns. Colour only repeats what a word already says.
"""
