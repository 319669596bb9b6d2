# SPDX-License-Identifier: Apache-2.0
"""What preflight judges, a family of checks a module: answers in, findings out, nothing asked and nothing printed."""
