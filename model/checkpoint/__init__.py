"""From a folder of weights to a `LandmarkModel`, and back."""

# transformers replaces itself in sys.modules at the end of its import. A thread that imports names from it meanwhile
# gets the module that was replaced, and fails; here it waits until the package is there.
import transformers  # noqa: F401
