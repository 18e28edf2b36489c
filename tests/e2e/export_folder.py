"""slm export to a folder, checked: it succeeds, holds every file that its report names, and leaves nothing beside it."""
import json


def export_folder(test, slm, model, to, out, *words):
    """Runs `slm` of the unittest `test`; the folder."""
    r = slm("export", model, "--to", to, "-o", out, *words, "--json")
    test.assertEqual(r.returncode, 0, r.stderr)
    test.assertEqual(sorted(p.name for p in out.parent.glob("*.part*")), [])
    for file in json.loads(r.stdout)["files"]:
        test.assertTrue((out / file).is_file(), file)
    return out
