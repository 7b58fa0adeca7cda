"""What is vendored is what was vendored, and the pages ask nobody else for anything."""

import hashlib
import re
from pathlib import Path

from django.conf import settings

STATIC = Path(settings.BASE_DIR) / "static"


def test_checksums():
    lines = (STATIC / "vendor/CHECKSUMS").read_text().splitlines()
    assert len(lines) >= 4
    for line in lines:
        digest, name = line.split()
        assert hashlib.sha256((STATIC / "vendor" / name).read_bytes()).hexdigest() == digest, name


def test_every_vendored_file_is_listed_with_its_licence():
    readme = (STATIC / "vendor/README.md").read_text()
    for path in (STATIC / "vendor").glob("*.*"):
        if path.suffix in (".js", ".woff2", ".css"):
            assert path.name in readme, path.name
    assert (STATIC / "vendor/licences").is_dir()


def test_own_files_name_no_other_host_and_use_no_eval():
    for path in [*STATIC.glob("css/*.css"), *STATIC.glob("js/*.js")]:
        text = path.read_text()
        assert not re.search(r"https?://", text), path.name
        assert not re.search(r"\beval\(|new Function|innerHTML\s*=", text), path.name
        assert len(text.splitlines()) < 320, path.name
