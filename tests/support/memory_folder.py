"""A folder in storage, in memory."""

from __future__ import annotations

from opicflow.connectors.storage.folder import StorageFolder, StorageRefused


class MemoryFolder(StorageFolder):
    """Files by their names. With the fault `away` every call fails, with `read-only` every write."""

    files: dict[str, bytes]
    faults: dict[str, bool]

    def __init__(self) -> None:
        object.__setattr__(self, "url", "memory:/")
        object.__setattr__(self, "files", {})
        object.__setattr__(self, "faults", {"away": False, "read-only": False})

    def names(self, below: str = "") -> list[str]:
        start = f"{below}/" if below else ""
        return sorted({name[len(start) :].partition("/")[0] for name in self._found() if name.startswith(start)})

    def read(self, name: str, most_bytes: int) -> bytes:
        if name not in self._found():
            raise FileNotFoundError(name)
        return self.files[name]

    def write(self, name: str, data: bytes) -> None:
        if self.faults["read-only"]:
            raise StorageRefused("the storage is read-only")
        self._found()[name] = data

    def remove(self, name: str) -> None:
        for file in [file for file in self._found() if file.startswith(f"{name}/")]:
            del self.files[file]

    def remove_file(self, name: str) -> None:
        self._found().pop(name, None)

    def _found(self) -> dict[str, bytes]:
        if self.faults["away"]:
            raise StorageRefused("the storage is away")
        return self.files
