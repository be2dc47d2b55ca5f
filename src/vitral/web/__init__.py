"""The explorer: a model at work in the browser, live from a local server or as one offline file."""
