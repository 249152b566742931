"""Several learners that train one agent together: they start, update, end and are restarted as one."""
