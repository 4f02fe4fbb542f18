"""An authority of a test's own, and certificates by it, made with openssl."""

import subprocess

_CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


def _openssl(*words, **options):
    line = ["openssl", *map(str, words)]
    subprocess.run(line, check=True, capture_output=True, text=True, **options)


class Authority:
    """Files in a folder: NAME.crt and NAME.key; its own are called by its name."""

    def __init__(self, folder, name="ca"):
        self.folder, self.name = folder, name
        self.certificate, self.key = folder / f"{name}.crt", folder / f"{name}.key"
        made = ["-keyout", self.key, "-out", self.certificate, "-days", "2"]
        _openssl("req", "-x509", *_CURVE, *made, "-subj", f"/CN={name}")

    def issue(self, name, subject, alternative=""):
        """A certificate of `subject` (/CN=...), with `alternative` names (URI:..., IP:...); the
        paths of it and of its key."""
        request, key = self.folder / f"{name}.csr", self.folder / f"{name}.key"
        _openssl("req", *_CURVE, "-keyout", key, "-out", request, "-subj", subject)
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alternative}\n" if alternative else "")
        certificate = self.folder / f"{name}.crt"
        by = ["-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial", "-days", "2"]
        _openssl(
            *["x509", "-req", "-in", request, *by, "-extfile", extensions, "-out", certificate]
        )
        return certificate, key
