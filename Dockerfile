# The page alone, without torch: docker build -t sonde . && docker run -p 8321:8321 -v "$PWD/runs:/runs:ro" -e SONDE_UI_TOKEN=… sonde
# Whoever reaches the port needs the token. Mounted for reading, notes and mutes cannot be kept; leave `:ro` out for them.
FROM python:3.12-slim AS build
WORKDIR /source
COPY . .
RUN pip install --no-cache-dir --target /installed ".[ui]" --constraint constraints.txt

FROM python:3.12-slim
COPY --from=build /installed /installed
ENV PYTHONPATH=/installed
RUN useradd --create-home sonde
USER sonde
EXPOSE 8321
ENTRYPOINT ["python", "-m", "sonde", "ui", "/runs", "--host", "0.0.0.0", "--no-open"]
