"""Texts in other languages: every message has a translation, and pages in another language have no English."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from babel.messages.extract import DEFAULT_MAPPING, extract_from_dir
from babel.messages.frontend import parse_mapping_cfg
