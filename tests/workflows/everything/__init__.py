"""One definition that uses every key there is, for the fault matrix; its handlers are those of ``faulty``."""

from tests.workflows.everything import handlers as handlers
