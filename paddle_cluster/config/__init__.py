# SPDX-License-Identifier: Apache-2.0
"""Merges conf.py, the environment and the command line into Settings. Depends only on `system` and `text`.

Settings are resolved once and then passed on; packages above this one never read os.environ, argv or conf.py.
"""
