import ast
from pathlib import Path

import infobatch.report


def test_reports_import_no_torch_and_nothing_of_the_library_but_records():
    for path in Path(infobatch.report.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                outside = node.level > 1 and node.module != "records"
                assert not outside, f"{path.name}, line {node.lineno}: imports from outside of report"
                names = [] if node.level else [node.module]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            for name in names:
                assert name.partition(".")[0] not in ("torch", "infobatch"), f"{path.name}, line {node.lineno}: {name}"
