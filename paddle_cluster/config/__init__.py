# SPDX-License-Identifier: Apache-2.0
"""The configuration: conf.py, environment and command line, merged into Settings; above `system` and `text`.

Settings are resolved once and then passed on; packages above this one never read os.environ, argv or conf.py.
"""
